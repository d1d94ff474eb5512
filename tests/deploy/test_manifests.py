"""What deploy/ hands out is valid: manifests by Kubernetes' schemas, settings as Tidemill reads them, scripts by their shell."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import pytest
import yaml

from tests.query.stand_in_status import group_app
from tests.query.stand_ins import ask
from tidemill.config.streams_config import StreamsConfig
from tidemill.config.texts import load_toml, parse_assignments
from tidemill.spark.launch.cluster_settings import cluster_settings
from tidemill.spark.launch.session_checks import REQUIRED, check_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted(DEPLOY.glob("kubernetes/*.yaml"))
VERSIONS = ("1.29", "1.31")


def documents(path: Path) -> list[dict[str, Any]]:
    found = list(yaml.safe_load_all(path.read_text()))
    assert found, f"{path.name} has no document"
    return found


def of_kind(path: Path, kind: str) -> dict[str, Any]:
    [found] = [document for document in documents(path) if document["kind"] == kind]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_document_has_only_fields_that_kubernetes_knows(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    pod = of_kind(MANIFESTS[0], "StatefulSet")
    pod["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, VERSIONS[0], strict=True)


def settings(path: Path) -> StreamsConfig:
    """As the container's command reads them, for the pod of number 0."""
    container = of_kind(path, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    words = [word.replace("$(POD_NAME)", "pod-0") for word in container["args"]]
    told = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    return StreamsConfig.of({**load_toml(of_kind(path, "ConfigMap")["data"]["tidemill.toml"]), **parse_assignments(told)})


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_the_settings_are_such_as_tidemill_takes(path: Path) -> None:
    config = settings(path)
    spark = {f"spark.{name}": value for name, value in config.spark.items()}
    check_settings(spark)
    cluster_settings(spark.get("spark.master", ""), spark)
    assert config.group_instance_id == "pod-0"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_what_is_mounted_exists_and_the_state_lies_on_a_claim(path: Path) -> None:
    spec = of_kind(path, "StatefulSet")["spec"]
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in spec["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert set(mounts) <= claims | volumes
    assert [mounts[name] for name in mounts if name in claims] == [settings(path).state_dir]


def test_the_instances_probes_and_ports_are_those_that_an_instance_answers_on() -> None:
    path = DEPLOY / "kubernetes" / "instances.yaml"
    [container] = of_kind(path, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    [port] = [port["containerPort"] for port in container["ports"]]
    assert settings(path).http_listen == f"0.0.0.0:{port}"
    assert settings(path).application_server == f"pod-0.wordcount:{port}"


def test_the_drivers_ports_stand_in_its_service_and_its_policy() -> None:
    path = DEPLOY / "kubernetes" / "spark-on-kubernetes.yaml"
    config = settings(path)
    told = {int(config.spark["driver.port"]), int(config.spark["driver.blockManager.port"]), int(config.control_listen[-4:])}
    assert {port["port"] for port in of_kind(path, "Service")["spec"]["ports"]} == told
    [rule] = of_kind(path, "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == told
    slots = int(config.spark["executor.instances"]) * int(config.spark["executor.cores"])
    assert config.num_stream_threads <= slots


def test_spark_submit_gets_what_the_data_path_needs() -> None:
    lines = [line.split(None, 1) for line in (DEPLOY / "spark-submit.conf").read_text().splitlines() if not line.startswith("#")]
    told = {name: value.strip() for name, value in lines}
    assert told.items() >= REQUIRED.items()


@pytest.mark.parametrize("script", sorted(DEPLOY.rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_such_as_bash_can_read(script: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_keda_asks_what_an_instance_answers_of_the_pods_that_the_other_manifest_runs() -> None:
    """Its kinds are KEDA's own, which no schema of Kubernetes knows."""
    path = DEPLOY / "keda" / "scaledobject.yaml"
    scaled, instances = of_kind(path, "ScaledObject")["spec"], DEPLOY / "kubernetes" / "instances.yaml"
    [trigger] = scaled["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    reply = ask(group_app()[0], f"{url.path}?{url.query}")
    assert (reply.status, type(reply.json[trigger["metadata"]["valueLocation"]])) == (200, int)
    assert (trigger["metricType"], trigger["metadata"]["targetValue"]) == ("AverageValue", "1")
    asked = parse_qs(url.query)
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (int(asked["least"][0]), int(asked["most"][0]))
    service, pods = of_kind(path, "Service"), of_kind(instances, "StatefulSet")
    assert (url.hostname, url.port) == (service["metadata"]["name"], service["spec"]["ports"][0]["port"])
    assert service["spec"]["selector"] == pods["spec"]["template"]["metadata"]["labels"]
    assert scaled["scaleTargetRef"]["name"] == pods["metadata"]["name"]
    [secret] = of_kind(path, "TriggerAuthentication")["spec"]["secretTargetRef"]
    assert secret["key"] in of_kind(instances, "Secret")["stringData"]
    assert secret["name"] == of_kind(instances, "Secret")["metadata"]["name"]
