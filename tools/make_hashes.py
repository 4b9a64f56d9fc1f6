"""Write constraints-hashes.txt from constraints.txt and pip's report: `make hashes`."""

import argparse
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = """\
# constraints.txt with the SHA-256 of each file: `make setup-hashed` on Python 3.11, Linux x86_64,
# PyTorch's CPU build. `make hashes` writes it anew from what the index serves.
"""


def same(name: str) -> str:
    """Return a package's name as indexes compare it.

    https://packaging.python.org/en/latest/specifications/name-normalization
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def lines(pins: str, report: dict) -> str:
    """Return each pin with the hash of its file, a line each."""
    hashes = {
        same(item["metadata"]["name"]): item["download_info"]["archive_info"]["hashes"]
        for item in report["install"]
    }
    wanted = [line for line in pins.splitlines() if line and not line.startswith("#")]
    return "".join(
        f"{pin} --hash=sha256:{hashes[same(re.split('[=[]', pin)[0])]['sha256']}\n"
        for pin in wanted
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="JSON file of pip's --report")
    report = json.loads(parser.parse_args().report.read_text())
    pins = (ROOT / "constraints.txt").read_text()
    (ROOT / "constraints-hashes.txt").write_text(HEADING + lines(pins, report))
