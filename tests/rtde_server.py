"""A Universal Robot as its clients see it: dashboard, script upload and RTDE, with an arm behind.

`python -m tests.rtde_server HOST [LOG]` serves one on the ports that ur_rtde insists on, at any
address of loopback, until it is killed. LOG gets a line of JSON for every step: time, q, qd.
Written from Universal Robots' RTDE guide and from what the script that ur_rtde uploads answers to.
"""

import json
import selectors
import socket
import struct
import sys
import time

import numpy as np

PORTS = {29999: "dashboard", 30001: "script", 30002: "script", 30003: "script", 30004: "rtde"}
PERIOD = 0.002  # [s]
# what the uploaded script's main loop handles at once; 9 is speedj. All else is done, then cleared.
REALTIME = {6, 9, 10, 11, 24, 25, 26, 27, 38, 58, 66, 67, 68, 69, 70, 71}
SPEEDJ = 9
SPEED_STOP = 15
WATCHDOG = 35
STOP_SCRIPT = 255
# its output_int_register_0
READY = 1
DONE = 2
STOPPING = 10.0  # [rad/s2]
TYPES = {"VECTOR6D": "6d", "VECTOR3D": "3d", "DOUBLE": "d", "UINT32": "I", "INT32": "i"}
TYPES |= {"UINT64": "Q", "VECTOR6INT32": "6i", "UINT8": "B"}
ANSWERS = {"PolyscopeVersion": "URSoftware 5.11.0.108249 (Aug 05 2021)", "quit": "Disconnected"}
ANSWERS |= {"is in remote control": "true", "get serial number": "20215500001"}


def find_type(name: str) -> str:
    """The guide's type of a variable."""
    vectors = ("target_", "actual_q", "actual_TCP", "actual_current", "joint_t", "joint_c")
    if name.startswith(("target_speed", "actual_digital")):
        return "DOUBLE" if name.startswith("target") else "UINT64"
    if name in ("actual_tool_accelerometer", "payload_cog", "elbow_position"):
        return "VECTOR3D"
    if name == "joint_mode":
        return "VECTOR6INT32"
    if "int_register" in name or name in ("robot_mode", "safety_mode"):
        return "INT32"
    if "bit_register" in name or name.endswith("status_bits") or name == "runtime_state":
        return "UINT32"
    if name.startswith(("standard_digital", "configurable_digital", "tool_digital")):
        return "UINT8"
    if name == "speed_slider_mask":
        return "UINT32"
    if name.startswith("standard_analog") and name.endswith(("mask", "type")):
        return "UINT8"
    six = (
        *vectors,
        "external_force",
        "ft_raw_wrench",
        "actual_joint_voltage",
        "payload_inertia",
        "tcp_offset",
    )
    return "VECTOR6D" if name.startswith(six) else "DOUBLE"


class Robot:
    """The arm, the registers and the program that ur_rtde uploads."""

    def __init__(self, q: np.ndarray):
        self.q = q
        self.qd = np.zeros(6)
        self.target = np.zeros(6)
        self.acceleration = STOPPING
        self.inputs: dict[str, float] = {}
        self.state = 0
        self.running = False
        self.executing = False
        self.least_rate = 0.0
        self.heard = 0.0
        self.time = 0.0

    def start(self) -> None:
        self.running = True
        self.state = READY
        self.executing = False
        self.least_rate = 0.0
        self.inputs["input_int_register_0"] = 0

    def end(self) -> None:
        """End the program; the arm brakes."""
        self.running = False
        self.state = 0
        self.target = np.zeros(6)
        self.acceleration = STOPPING

    def hear(self, now: float) -> None:
        """Run the program's loop once, with the registers that have come."""
        self.heard = now
        command = int(self.inputs.get("input_int_register_0", 0))
        values = [self.inputs.get(f"input_double_register_{index}", 0.0) for index in range(8)]
        if not self.running:
            return
        if command == SPEEDJ:
            self.target = np.array(values[:6])
            self.acceleration = values[6]
        if command == 0 or command in REALTIME:
            self.executing = False
            self.state = READY
        elif not self.executing:
            self.executing = True
            self.state = DONE
            if command == SPEED_STOP:
                self.target = np.zeros(6)
                self.acceleration = values[0]
            if command == WATCHDOG:
                self.least_rate = values[0]
            if command == STOP_SCRIPT:
                self.end()

    def step(self, now: float) -> None:
        if self.running and self.least_rate and now - self.heard > 1.0 / self.least_rate:
            self.end()  # rtde_set_watchdog(..., "stop")
        most = self.acceleration * PERIOD
        before = self.qd
        self.qd = before + np.clip(self.target - before, -most, most)
        self.q = self.q + 0.5 * PERIOD * (before + self.qd)
        self.time += PERIOD

    def get(self, name: str):
        """The value of a variable; nothing is felt, and all else is zero."""
        known = {
            "timestamp": self.time,
            "actual_q": self.q,
            "actual_qd": self.qd,
            "target_q": self.q,
            "target_qd": self.qd,
            "robot_status_bits": 3 if self.running else 1,  # power on, program running
            "safety_status_bits": 1,
            "runtime_state": 2 if self.running else 1,
            "robot_mode": 7,
            "safety_mode": 1,
            "speed_scaling": 1.0,
            "output_int_register_0": self.state,
        }
        return known.get(name)


class Connection:
    """A client of one port."""

    def __init__(self, sock: socket.socket, kind: str, robot: Robot):
        self.sock = sock
        self.kind = kind
        self.robot = robot
        self.buffer = b""
        self.recipes: list[list[tuple[str, str]]] = []
        self.outputs: list[tuple[str, str]] = []
        self.started = False
        if kind == "dashboard":
            sock.sendall(b"Connected: Universal Robots Dashboard Server\n")

    def take(self, data: bytes, now: float) -> None:
        self.buffer += data
        if self.kind == "dashboard":
            while b"\n" in self.buffer:
                line, self.buffer = self.buffer.split(b"\n", 1)
                self.sock.sendall(self.ask(line.decode().strip()).encode() + b"\n")
        elif self.kind == "script":
            if b"\nend" in self.buffer[-12:]:
                self.robot.start()
                self.buffer = b""
        else:
            while len(self.buffer) >= 3:
                size, kind = struct.unpack_from(">HB", self.buffer)
                if len(self.buffer) < size:
                    return
                body = self.buffer[3:size]
                self.buffer = self.buffer[size:]
                self.answer(chr(kind), body, now)

    def ask(self, line: str) -> str:
        """Answer a line of the dashboard."""
        if line == "stop":
            self.robot.end()
            return "Stopped"
        return ANSWERS.get(line, f"Program running: {str(self.robot.running).lower()}")

    def answer(self, kind: str, body: bytes, now: float) -> None:
        """Answer a packet of RTDE."""
        if kind == "V":
            self.send(kind, b"\1")
        elif kind == "v":
            self.send(kind, struct.pack(">4I", 5, 11, 0, 108249))
        elif kind in "OI":
            names = body[8 if kind == "O" else 0 :].decode().strip(",").split(",")
            recipe = [(name, TYPES[find_type(name)]) for name in names]
            types = ",".join(find_type(name) for name in names)
            if kind == "O":
                self.outputs = recipe
            else:
                self.recipes.append(recipe)
            number = 1 if kind == "O" else len(self.recipes)
            self.send(kind, bytes([number]) + types.encode())
        elif kind in "SP":
            self.started = kind == "S"
            self.send(kind, b"\1")
        elif kind == "U":
            place = 1
            for name, form in self.recipes[body[0] - 1]:
                values = struct.unpack_from(f">{form}", body, place)
                self.robot.inputs[name] = values[0]
                place += struct.calcsize(f">{form}")
            self.robot.hear(now)

    def send(self, kind: str, body: bytes) -> None:
        self.sock.sendall(struct.pack(">HB", 3 + len(body), ord(kind)) + body)

    def send_state(self) -> None:
        body = b"\1"
        for name, form in self.outputs:
            value = self.robot.get(name)
            count = int(form[:-1] or 1)
            values = [0] * count if value is None else np.atleast_1d(value)
            body += struct.pack(
                f">{form}", *(float(v) if form[-1] == "d" else int(v) for v in values)
            )
        self.send("U", body)


def serve(host: str, q: np.ndarray, log=None) -> None:
    """Serve a robot at an address, for ever."""
    robot = Robot(q)
    waiting = selectors.DefaultSelector()
    for port, kind in PORTS.items():
        server = socket.create_server((host, port))
        waiting.register(server, selectors.EVENT_READ, kind)
    clients: list[Connection] = []
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        for key, _ in waiting.select(max(0.0, due - time.monotonic())):
            if isinstance(key.data, str):
                sock = key.fileobj.accept()[0]
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients.append(Connection(sock, key.data, robot))
                waiting.register(sock, selectors.EVENT_READ, clients[-1])
                continue
            data = _received(key.data.sock)
            if data:
                key.data.take(data, time.monotonic())
            else:
                waiting.unregister(key.data.sock)
                clients.remove(key.data)
        while (now := time.monotonic()) >= due:
            due = max(due + PERIOD, now - 0.05)
            robot.step(now)
            if log:
                log.write(json.dumps([now, robot.q.tolist(), robot.qd.tolist()]) + "\n")
            for client in clients:
                if client.started:
                    try:
                        client.send_state()
                    except OSError:  # its end is read above
                        client.started = False


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except OSError:
        return b""


if __name__ == "__main__":
    from td3_robot.deploy import Robot as Arm

    lines = open(sys.argv[2], "w", buffering=1) if len(sys.argv) > 2 else None
    serve(sys.argv[1], np.array(Arm.load("ur5e").home), lines)
