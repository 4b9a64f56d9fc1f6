"""What the servers of the browser view give away, and to whom."""

import contextlib
import http.client
import json
import os
import queue
import socket
import sys
import threading
import time

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from envs.view.page import CHANGES, list_mesh_files, list_page_files
from envs.view.server import PageServer
from td3_robot.errors import ViewerError

OPEN = 0.04  # [m] the Panda hand's driver coordinate when open


def get(address, path: str, host: str | None = None) -> http.client.HTTPResponse:
    """A GET whose path is sent exactly as written."""
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.putrequest("GET", path, skip_host=host is not None)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    return connection.getresponse()


@pytest.mark.parametrize(
    "path",
    [
        "/retrieve/etc/passwd",
        "/retrieve//etc/passwd",
        "/retrieve/%2fetc%2fpasswd",
        "/retrieve/%65tc/passwd",
        "/etc/passwd",
        "//etc/passwd",
        "/../../../../../../../../../../etc/passwd",
        "/js/../../__init__.py",
        "/%2e%2e/__init__.py",
        "/..%2f__init__.py",
        "/js/%2e%2e%2f%2e%2e%2f__init__.py",
        "/js\\..\\..\\__init__.py",
        "/%00/etc/passwd",
        "/js/",
        "/js",
    ],
)
def test_no_other_file_can_be_fetched(viewer, robot, path):
    viewer.show(robot.home, OPEN)  # the robot's meshes are in the table
    assert get(viewer.address, path).status == 403
    assert get(viewer.address, root(viewer) + path).status == 404


def test_a_mesh_is_served_under_its_own_path_alone(viewer, robot):
    viewer.show(robot.home, OPEN)
    folder, name = os.path.split(robot.rtb.links[1].geometry[0].filename)
    assert get(viewer.address, f"{root(viewer)}/retrieve{folder}/{name}").status == 200
    around = f"{folder}/../{os.path.basename(folder)}/{name}"
    assert os.path.isfile(around)
    for path in (
        f"/retrieve{around}",
        f"/retrieve{folder}/",
        f"{folder}/{name}",
        f"/retrieve{__file__}",
    ):
        assert get(viewer.address, root(viewer) + path).status == 404


def test_a_page_of_another_host_name_is_refused(viewer):
    page = root(viewer) + "/"
    assert get(viewer.address, page).status == 200
    assert get(viewer.address, page, host="localhost:1").status == 200
    for host in (
        "attacker.example",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example:80",
        "",
    ):
        assert get(viewer.address, page, host=host).status == 403


@pytest.mark.parametrize("path", ["/", "", "/js/main.js", "/socket", "/%00/", "/%C3%A9/"])
def test_nothing_is_served_without_the_token(servers, path):
    for prefix in ("", "/" + "x" * 22, root(servers)[:-1], "/" + root(servers)):
        assert get(servers.address, prefix + path).status in (403, 404)


def test_the_servers_listen_on_the_loopback_address_alone(viewer):
    host, port = viewer.address
    assert host == "127.0.0.1"
    socket.create_connection((host, port), timeout=1).close()
    if sys.platform.startswith(
        "linux"
    ):  # there the whole of 127/8 reaches a socket bound to 0.0.0.0
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", port), timeout=1)


def test_a_port_can_be_chosen_and_one_that_is_taken_is_named(servers):
    port = servers.address[1]
    with pytest.raises(ViewerError, match=f"port {port}: .*--port"):
        PageServer(queue.Queue(), queue.Queue(), threading.Event(), port)
    servers.close()
    other = PageServer(queue.Queue(), queue.Queue(), threading.Event(), port)
    assert other.address[1] == port
    other.close()


def test_silence_and_nonsense_leave_the_page_its_place(servers, capfd):
    for said in (
        b"",
        b"GET",
        b"POST / HTTP/1.1\r\n\r\n",
        b"\x00" * 1000,
        b"GET / HTTP/1.1\r\nA: " + b"b" * 100_000,
    ):
        silent = socket.create_connection(servers.address)
        with contextlib.suppress(OSError):
            silent.sendall(said)
    with websocket(servers, origin(servers)) as page:
        page.send("hello")
        assert servers._incoming.get(timeout=60) == "hello"
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def servers():
    servers = PageServer(queue.Queue(), queue.Queue(), threading.Event())
    yield servers
    servers.close()


def root(served) -> str:
    """The token of an address, as its path begins."""
    return "/" + served.url.split("/")[3]


def origin(served) -> str:
    return served.url.rsplit("/", 2)[0]


def websocket(servers: PageServer, origin: str | None, token: str | None = None):
    host, port = servers.address
    path = root(servers) if token is None else f"/{token}"
    return connect(f"ws://{host}:{port}{path}/socket", origin=origin, compression=None)


@pytest.mark.parametrize("other", ["http://attacker.example", "null", "http://127.0.0.1:1", None])
def test_the_websocket_refuses_other_origins(servers, other):
    with pytest.raises(InvalidStatus, match="403"):
        websocket(servers, other)


@pytest.mark.parametrize("token", ["", "x" * 22, "%00", "../"])
def test_the_websocket_refuses_who_was_not_given_the_address(servers, token):
    """An origin can be forged by any program on the machine; the slot stays free for the real
    page.
    """
    with pytest.raises(InvalidStatus, match="403"):
        websocket(servers, origin(servers), token)
    with websocket(servers, origin(servers)) as page:
        page.send("hello")
        assert servers._incoming.get(timeout=60) == "hello"


def test_every_change_to_swifts_page_finds_its_place():
    """Swift's page is changed as it is served: an update of Swift may need another change."""
    files = {
        path.rsplit("/", 1)[1]: file
        for path, file in list_page_files().items()
        if "/vendor/" not in path
    }
    for name, changes in CHANGES.items():
        body = files[name].read_bytes()
        assert [body.count(old) for old, _ in changes] == [1] * len(changes), name


def test_a_page_that_goes_before_it_says_anything_leaves_its_place(servers):
    with websocket(servers, origin(servers)):
        pass
    for _ in range(100):  # the server hears of the end a moment later
        with (
            websocket(servers, origin(servers)) as page,
            contextlib.suppress(ConnectionClosed, queue.Empty),
        ):
            page.send("hello")
            assert servers._incoming.get(timeout=1.0) == "hello"
            break
    else:
        pytest.fail("its place stays taken")


def test_who_floods_hangs_or_never_asks_does_not_hold_the_end_up(servers):
    servers._files["/large"] = b"x" * 2**24
    silent, slow = (socket.create_connection(servers.address, timeout=20) for _ in range(2))
    with silent, slow, websocket(servers, origin(servers)) as page:
        slow.sendall(f"GET {root(servers)}/large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        for _ in range(2_000):
            page.send("hello")
        assert servers._incoming.get(timeout=60) == "hello"
        began = time.monotonic()
        servers.close()
        assert time.monotonic() - began < 60  # one of them would have two minutes


def test_the_websocket_takes_one_page(servers, monkeypatch):
    monkeypatch.setattr("envs.view.server._RELOAD", 0.2)
    with websocket(servers, origin(servers)) as first:
        first.send("hello")
        assert servers._incoming.get(timeout=60) == "hello"  # it is taken, before another one comes
        with (
            websocket(servers, origin(servers)) as second,
            pytest.raises(ConnectionClosed, match="another tab"),
        ):
            second.recv(timeout=60)


def test_a_shape_opens_its_mesh_and_textures_and_nothing_else(tmp_path):
    """The whole way: a shape is sent to the page, then its folder is asked for over HTTP."""
    (tmp_path / "meshes").mkdir()
    mesh = tmp_path / "meshes" / "a b.dae"
    references = ("skin.png", "../common/paint.jpg", "notes.txt", "../../../../../../etc/passwd")
    references += (f"{'a' * 300}.png",)  # longer than a file's name can be
    mesh.write_text("".join(f"<init_from>{name}</init_from>" for name in references))
    (tmp_path / "common").mkdir()
    for name in ("meshes/skin.png", "common/paint.jpg", "meshes/notes.txt", "meshes/other.png"):
        (tmp_path / name).write_text("x")
    (tmp_path / "meshes" / "link.png").symlink_to("/etc/passwd")
    outgoing = queue.Queue()
    servers = PageServer(outgoing, queue.Queue(), threading.Event())
    try:

        def status(name):
            return get(servers.address, f"{root(servers)}/retrieve{tmp_path}/{name}").status

        assert status("meshes/a%20b.dae") == 404
        with websocket(servers, origin(servers)) as page:
            page.send("hello")
            outgoing.put([True, ["shape", [{"stype": "mesh", "filename": str(mesh)}]]])
            assert json.loads(page.recv(timeout=60))[0] == "shape"
            allowed = ("meshes/a%20b.dae", "meshes/skin.png", "common/paint.jpg")
            refused = ("meshes/notes.txt", "meshes/other.png", "meshes/link.png", "meshes/")
            assert [status(name) for name in allowed] == [200] * 3
            assert [status(name) for name in refused] == [404] * 4
            assert get(servers.address, f"{root(servers)}/retrieve/etc/passwd").status == 404
    finally:
        servers.close()


@pytest.mark.parametrize(
    "name, before, space, after",
    [
        ("a.dae", "<!-- <init_from>", " ", "< --><init_from> skin.png\n</init_from>"),
        ("a.mtl", "", "\n", "newmtl x\n  map_Kd -s 1 1 1 skin.png \r\n"),
        ("a.mtl", "map_Kd ", "a", " b\f\nbump skin.png"),
        ("a.wrl", "url", " ", 'x url [ "skin.png" ]'),
        ("a.gltf", '"uri"', " ", '"uri" : "skin.png"'),
    ],
)
def test_no_mesh_stops_the_page_by_long_blanks(tmp_path, name, before, space, after):
    """Searching a file takes time in proportion to its length."""
    (tmp_path / name).write_text(f"{before}{space * 50_000}{after}", newline="")
    (tmp_path / "a.obj").write_text("v 0 0 0\n")
    (tmp_path / "skin.png").write_text("x")
    mesh = tmp_path / ("a.obj" if name == "a.mtl" else name)
    began = time.monotonic()
    assert f"/retrieve{tmp_path}/skin.png" in list_mesh_files(str(mesh))
    assert time.monotonic() - began < 1.0


def test_a_wavefront_mesh_without_materials_gets_its_colour(tmp_path):
    mesh = tmp_path / "part.obj"
    mesh.write_text("v 0 0 0\n")
    asked = f"/retrieve{tmp_path}/part"
    assert list_mesh_files(str(mesh), 0xFF0033) == {
        f"{asked}.obj": mesh,
        f"{asked}.mtl": b"newmtl \nKd 1.0000 0.0000 0.2000\n",
    }
    (tmp_path / "part.mtl").write_text("newmtl own\n")
    assert list_mesh_files(str(mesh), 0xFF0033)[f"{asked}.mtl"] == tmp_path / "part.mtl"
    assert list_mesh_files(str(tmp_path / "gone.obj")) == {}


def test_wavefront_lines_are_not_served(tmp_path):
    mesh = tmp_path / "part.obj"
    mesh.write_text("v 0 0 0\nl 1 1\nf 1 1 1\nl 1 1")
    outgoing = queue.Queue()
    servers = PageServer(outgoing, queue.Queue(), threading.Event())
    try:
        with websocket(servers, origin(servers)) as page:
            page.send("hello")
            outgoing.put(
                [True, ["shape", [{"stype": "mesh", "filename": str(mesh), "color": 255}]]]
            )
            page.recv(timeout=60)
            assert (
                get(servers.address, f"{root(servers)}/retrieve{mesh}").read()
                == b"v 0 0 0\nf 1 1 1\n"
            )
            materials = get(servers.address, f"{root(servers)}/retrieve{tmp_path}/part.mtl").read()
            assert materials.endswith(b"Kd 0.0000 0.0000 1.0000\n")
    finally:
        servers.close()


def test_who_is_slow_gets_the_whole_file(servers, tmp_path):
    """Longer than the buffers between both hold, and the server's first patience."""
    servers._files["/large"] = b"x" * 2**24
    with socket.create_connection(servers.address, timeout=20) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
        slow.sendall(f"GET {root(servers)}/large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(1.5)
        received = 0
        while part := slow.recv(2**20):
            received += len(part)
            if received > 2**24:
                break
    assert received > 2**24  # and the head


def test_every_wavefront_mesh_is_loaded_with_its_own_materials(servers):
    (path,) = (path for path in list_page_files() if path.endswith("/shapes.js"))
    served = get(servers.address, root(servers) + path).read()
    # the page's own, and the one for each load
    assert served.count(b"const objLoader = new OBJLoader()") == 2


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_a_port_that_there_is_not_is_refused_in_one_line(port):
    with pytest.raises(ViewerError, match=f"on port {port}: ports are 0 to 65535; try another"):
        PageServer(queue.Queue(), queue.Queue(), threading.Event(), port)
