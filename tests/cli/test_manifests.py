"""``plink manifests``: writes objects, and refuses in one line what Kubernetes would."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import typed

HOSTS = "node-c address=10.0.0.3\nnode-a slots=2\nnode-b\n"


def launch(folder: Path, *words: str, hosts: str = HOSTS) -> "subprocess.CompletedProcess[str]":
    """``plink manifests`` with a hosts file."""
    (folder / "hosts.txt").write_text(hosts)
    order = [] if "--order" in words else ["--order", "given"]
    return typed("manifests", "--hosts", "hosts.txt", *order, *words, cwd=folder)


def test_objects_on_standard_output_and_what_to_do_with_them_beside_it(tmp_path: Path) -> None:
    done = launch(tmp_path, "--image", "i", "--job-name", "mine", "train.py", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    kinds = [document["kind"] for document in yaml.safe_load_all(done.stdout)]
    assert kinds == ["ConfigMap", "Service", "Job"]
    assert "`kubectl apply -f -` starts it" in done.stderr
    assert "-l plink-job=mine | grep plink-rank`" in done.stderr
    assert not (tmp_path / ".plink" / "runs").exists()  # nothing was run


def test_hubs_that_no_pod_is_for_are_named(tmp_path: Path) -> None:
    done = launch(tmp_path, "--image", "i", "train.py", hosts=f"{HOSTS}adder-7 role=hub\n")
    assert done.returncode == 0
    assert "adder-7: role=hub takes no ranks" in done.stderr
    assert "adder-7" not in done.stdout


def test_no_host_is_contacted_for_an_order(tmp_path: Path) -> None:
    """Without one, and without a measurement: refused before a host is."""
    (tmp_path / "hosts.txt").write_text("".join(f"node-{k} address=127.0.0.1 port={k}\n" for k in (1, 2, 3)))
    done = typed("manifests", "--hosts", "hosts.txt", "--image", "i", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing was measured of these 3 hosts here yet: give --order" in done.stderr


def test_a_file_and_json(tmp_path: Path) -> None:
    done = launch(tmp_path, "--image", "i", "--job-name", "mine", "-o", "job.json", "--json", "train.py")
    assert (done.returncode, done.stdout) == (0, "")
    assert "`kubectl apply -f job.json` starts it" in done.stderr
    document = json.loads((tmp_path / "job.json").read_text())
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    as_yaml = launch(tmp_path, "--image", "i", "--job-name", "mine", "train.py").stdout
    items = list(yaml.safe_load_all(as_yaml))
    for item in (*items, *document["items"]):
        if item["kind"] == "ConfigMap":
            settings = json.loads(item["data"].pop("settings.json"))
            assert settings["settings"]["bootstrap"].pop("job")  # of this run alone
            assert settings["settings"]["nodes"] == ["node-c", "node-a", "node-b"]
    assert items == document["items"]


def test_the_order_and_the_options_reach_the_pods(tmp_path: Path) -> None:
    (tmp_path / "order.txt").write_text("node-b\nnode-c\nnode-a\n")
    words = ["--order", "order.txt", "--env", "A=$(B)", "--workdir", "/srv", "--interface", "eth1", "--timeout", "2h"]
    more = [
        "--resources",
        "cpu=4",
        "--resources",
        "nvidia.com/gpu=2",
        "--namespace",
        "team",
        "--set",
        "master-port=29500",
    ]
    done = launch(tmp_path, "--image", "i", *words, *more, "--python", "python3.12", "train.py", "$(A)")
    documents = {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}
    settings = json.loads(documents["ConfigMap"]["data"]["settings.json"])["settings"]
    assert (settings["nodes"], settings["slots"]) == (["node-b", "node-c", "node-a"], [1, 1, 2])
    assert settings["env"] == {"A": "$(B)"}
    assert settings["request"] == {"workdirs": ["/srv"], "pythons": ["python3.12"], "interface": "eth1", "port": 29500}
    assert documents["Job"]["spec"]["activeDeadlineSeconds"] == 7200
    (container,) = documents["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["train.py", "$$(A)"]
    assert container["resources"]["requests"] == {"cpu": "4", "nvidia.com/gpu": "2"}
    assert "kubectl logs -n team" in done.stderr
    assert "every pod requests nvidia.com/gpu=2, and hosts have 1 to 2 slots" in done.stderr


def test_a_dry_run_prints_the_objects(tmp_path: Path) -> None:
    words = ["--image", "i", "--job-name", "mine", "--dry-run"]
    done = launch(tmp_path, *words, "train.py")
    assert done.stdout.startswith("# mine.yaml\n---\napiVersion: v1\n")
    assert all(yaml.safe_load_all(done.stdout))
    assert done.stdout.endswith("\n# kubectl apply -f mine.yaml\n")
    document = json.loads(launch(tmp_path, *words, "--json", "train.py").stdout)
    assert (document["schema"], document["runner"]) == ("plink.dry-run/1", "kubernetes")
    assert json.loads(document["files"]["mine.json"])["kind"] == "List"
    shown = launch(tmp_path, *words, "-o", "other.yaml", "train.py").stdout
    assert shown.startswith("# other.yaml\n")
    assert shown.endswith("\n# kubectl apply -f other.yaml\n")
    assert not (tmp_path / "other.yaml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--image", ""], "--image: write the name of an image, with python3 and the program in it"),
        ([], "--image"),
        (["--image", "i", "--job-name", "My_Job"], "--job-name My_Job: write a letter, then lower-case"),
        (["--image", "i", "--namespace", "a.b"], "--namespace a.b: write lower-case letters"),
        (["--image", "i", "--resources", "gpus=8"], "--resources gpus=8: write cpu=4"),
        (["--image", "i", "--tail", "3"], "No such option: --tail"),
        (["--image", "i", "--set", "preflight=strict"], "--set preflight=strict needs plink's agents"),
    ],
)
def test_what_cannot_be_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = launch(tmp_path, *words, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert message in line
