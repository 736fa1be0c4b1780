"""Images: the node image, images that targets bring, and the image of Spark executors."""
