"""An independent verifier of found anomalies."""
