#!/bin/bash
# The first argument chooses the role of this container:
#
#   driver ..., executor   processes that Spark on Kubernetes starts, set by SPARK_* variables
#   master, worker URL     the parts of a standalone cluster, in the foreground
#   connect ...            a Spark Connect server, with the options of spark-submit
#   anything else          a command to run, such as `harness report ...`
set -eu
role=${1:-}

case "$role" in
driver)
    shift
    set -- spark-submit --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    options=()
    for ((n = 0; ; n++)); do # as many as there are
        name=SPARK_JAVA_OPT_$n
        [ -n "${!name+x}" ] || break
        options+=("${!name}")
    done
    classes=${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*
    set -- java ${options[@]+"${options[@]}"} \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "$classes:${SPARK_EXTRA_CLASSPATH:-}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
master)
    shift
    set -- spark-class org.apache.spark.deploy.master.Master --host "$(hostname)" --port 7077 "$@"
    ;;
worker)
    shift
    set -- spark-class org.apache.spark.deploy.worker.Worker --work-dir /work "$@"
    ;;
connect)
    shift
    set -- spark-submit --class org.apache.spark.sql.connect.service.SparkConnectServer \
        "$@" spark-internal
    ;;
esac

# Process 1 must reap the orphans of its children. With -s, tini also does so under `docker run --init`.
exec tini -s -- "$@"
