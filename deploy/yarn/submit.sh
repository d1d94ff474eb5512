#!/bin/bash
# An application on YARN, in client mode: submit.sh APP.py [SETTING=VALUE ...]. Wants HADOOP_CONF_DIR, and PACKED, an environment with
# Tidemill and the application's packages (python -m pip install venv-pack; venv-pack -o environment.tar.gz).
set -eu
: "${HADOOP_CONF_DIR:?set it to the folder with core-site.xml and yarn-site.xml}"
: "${PACKED:?set it to the packed environment, such as environment.tar.gz}"
: "${DRIVER_HOST:?set it to an address of this machine that the nodes of YARN reach}"
here=$(cd "$(dirname "$0")/.." && pwd)
exec spark-submit \
  --master yarn --deploy-mode client \
  --properties-file "$here/spark-submit.conf" \
  --conf spark.driver.host="$DRIVER_HOST" \
  --archives "$PACKED#environment" \
  --conf spark.pyspark.python=environment/bin/python \
  --conf spark.pyspark.driver.python="${PYSPARK_PYTHON:-python3}" \
  --conf spark.executor.instances="${EXECUTORS:-2}" \
  --conf spark.executor.cores="${CORES:-2}" \
  --conf spark.executor.memory="${MEMORY:-1g}" \
  --conf spark.executor.memoryOverhead="${OVERHEAD:-2g}" \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.yarn.max.executor.failures=1000000 \
  --conf spark.yarn.executor.failuresValidityInterval=1h \
  "$here/submitted.py" "$@"
