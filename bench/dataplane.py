"""Helpers of bench/dataplane.ts in a network namespace; the first argument selects one.

generations  prints a line whenever the kernel has committed an nftables transaction
sink         receives datagrams at a port; answers only those that request it, to establish a flow
flows        prints datagrams per second, each from a different port, so that each is a new flow
stream       prints datagrams per second of one established flow
"""
import socket, sys, time

ROUNDS = 5  # the best one counts: other work on the machine only slows it down


def generations():
    NETFILTER, NFTABLES_GROUP, NEW_GENERATION = 12, 7, (10 << 8) + 15
    listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
    listener.bind((0, 1 << (NFTABLES_GROUP - 1)))
    print("ready", flush=True)
    while True:
        data, at = listener.recv(1 << 20), 0
        while at + 16 <= len(data):
            length = int.from_bytes(data[at : at + 4], sys.byteorder)
            if int.from_bytes(data[at + 4 : at + 6], sys.byteorder) == NEW_GENERATION:
                print("new", flush=True)
            at += max(16, (length + 3) & ~3)


def sink(port):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the minimum: some datagrams
    receiver.bind(("", port))
    print("ready", flush=True)
    while True:
        data, peer = receiver.recvfrom(64)
        if data == b"first":
            receiver.sendto(b"answer", peer)
        else:
            time.sleep(0.02)  # the kernel drops unread datagrams, which costs no CPU time here


def rate(count, step):
    best = 0
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for index in range(count):
            step(index)
        best = max(best, count / (time.perf_counter() - started))
    return best


def flows(host, port, count):
    def one(index):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.bind(("", 20_000 + index % 40_000))
        sender.sendto(b"x", (host, port))
        sender.close()

    print(rate(count, one))


def stream(host, port, count):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((host, port))
    sender.settimeout(0.5)
    for _ in range(20):
        sender.send(b"first")
        try:
            sender.recv(64)
            break
        except TimeoutError:
            pass
    else:
        sys.exit("the sink does not answer")
    send = sender.send
    print(rate(count, lambda _: send(b"x")))


part, *rest = sys.argv[1:]
if part == "generations":
    generations()
elif part == "sink":
    sink(int(rest[0]))
else:
    {"flows": flows, "stream": stream}[part](rest[0], int(rest[1]), int(rest[2]))
