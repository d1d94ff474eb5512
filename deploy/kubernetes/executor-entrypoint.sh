#!/bin/bash
# What Spark on Kubernetes starts in an executor's pod, with the one argument "executor". PySpark as pip installs it has no such
# script; this one starts the same class with what Spark has put into the environment.
set -eu
if [ "${1:-}" != executor ]; then
  exec "$@"
fi
# The driver hands the JVM's options over as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
mapfile -t numbers < <(env | sed -n 's/^SPARK_JAVA_OPT_\([0-9]*\)=.*/\1/p' | sort -n)
options=()
for number in "${numbers[@]}"; do
  name="SPARK_JAVA_OPT_$number"
  options+=("${!name}")
done
exec tini -s -- java "${options[@]}" \
  -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
