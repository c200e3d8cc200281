"""A slow link that loses packets, between two network namespaces: for kernels without netem.

Arguments: two pairs of a namespace and the address of its end, the delay of each direction in milliseconds, the share of packets
that is lost, and the seed by which they are drawn. Prints "ready", and passes packets on until its input closes; then prints
the numbers of packets that it passed on and lost.
"""
import fcntl, heapq, os, random, select, struct, subprocess, sys, time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 1500


def end(name, namespace, address, peer):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    # The open file stays its other end.
    subprocess.run(["ip", "link", "set", name, "netns", namespace], check=True)
    inside = ["ip", "-n", namespace]
    subprocess.run([*inside, "address", "add", address, "peer", peer, "dev", name], check=True)
    subprocess.run([*inside, "link", "set", name, "mtu", str(MTU), "up"], check=True)
    return device


def main(near, near_address, far, far_address, delay_ms, loss, seed):
    delay, loss, drawn = float(delay_ms) / 1000, float(loss), random.Random(int(seed))
    ends = [
        end(f"near{os.getpid()}"[:15], near, near_address, far_address),
        end(f"far{os.getpid()}"[:15], far, far_address, near_address),
    ]
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    waiting, passed, lost = [], 0, 0
    print("ready", flush=True)
    while True:
        timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([*ends, sys.stdin], [], [], timeout)
        now = time.monotonic()
        for device in readable:
            if device is sys.stdin:
                print(passed, lost, flush=True)
                return
            while True:
                try:
                    packet = os.read(device, MTU + 64)
                except BlockingIOError:
                    break
                if drawn.random() < loss:
                    lost += 1
                else:
                    # Numbered, so that packets of one moment keep their order.
                    heapq.heappush(waiting, (now + delay, passed, other[device], packet))
                    passed += 1
        while waiting and waiting[0][0] <= now:
            _, _, device, packet = heapq.heappop(waiting)
            try:
                os.write(device, packet)
            except OSError:
                pass  # its queue is full, which loses the packet as well


main(*sys.argv[1:])
