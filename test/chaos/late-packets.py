"""Forwards every frame between two interfaces, delayed: A B MILLISECONDS JITTER. Prints a line when it starts."""
import collections, random, select, socket, sys, time

first, second = sys.argv[1:3]
delay, jitter = (float(text) / 1000 for text in sys.argv[3:5])
SOL_PACKET, PACKET_VNET_HDR, PACKET_OUTGOING = 263, 15, 4
ALL = 3  # ETH_P_ALL
# Frames queued in one direction; further ones are dropped, as by a router.
WAITING_MAX = 20000


def opened(name):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # Work that a kernel leaves to the hardware (checksums, segmentation) is passed on with each frame.
    link.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    link.bind((name, ALL))
    link.setblocking(False)
    return link


links = [opened(first), opened(second)]
waiting = {link: collections.deque() for link in links}
other = {links[0]: links[1], links[1]: links[0]}
print("ready", flush=True)
while True:
    now = time.monotonic()
    due = min((queue[0][0] for queue in waiting.values() if queue), default=now + 1)
    readable, _, _ = select.select(links, [], [], max(0, due - now))
    for link in readable:
        for _ in range(256):
            try:
                frame, address = link.recvfrom(1 << 17)
            except BlockingIOError:
                break
            queue = waiting[other[link]]
            if address[2] == PACKET_OUTGOING or len(queue) >= WAITING_MAX:
                continue
            at = time.monotonic() + delay + random.random() * jitter
            # In order: no frame overtakes an earlier one.
            queue.append((max(at, queue[-1][0]) if queue else at, frame))
    now = time.monotonic()
    for link, queue in waiting.items():
        while queue and queue[0][0] <= now:
            try:
                link.send(queue.popleft()[1])
            except OSError:
                pass  # The other end is down or full: a lost packet.
