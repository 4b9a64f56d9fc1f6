"""Write constraints-hashes.txt from constraints.txt and pip's report of what an index serves for
it: `make hashes`.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = """\
# constraints.txt with the SHA-256 of each file: `make setup-hashed` on Python 3.11, Linux x86_64,
# PyTorch's CPU build. `make hashes` writes it anew from what the index serves.
"""


def same(name: str) -> str:
    """A package's name as indexes compare it,
    https://packaging.python.org/en/latest/specifications/name-normalization.
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def lines(pins: str, report: dict) -> str:
    """Each pin with the hash of its file."""
    told = {
        same(item["metadata"]["name"]): item["download_info"]["archive_info"]["hashes"]
        for item in report["install"]
    }
    wanted = [line for line in pins.splitlines() if line and not line.startswith("#")]
    return "".join(
        f"{pin} --hash=sha256:{told[same(re.split('[=[]', pin)[0])]['sha256']}\n" for pin in wanted
    )


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text())
    (ROOT / "constraints-hashes.txt").write_text(
        HEADING + lines((ROOT / "constraints.txt").read_text(), report)
    )
