"""Measures whether the answer to a key of another namespace takes as long as the answer for no such sandbox.

Two connections of one key, each logged in under another sandbox's name; on each, channels are opened in turns and asked to
run a command. The sandbox of the first exists, in another namespace; that of the second does not. Prints both
distributions, and how often a random relabelling of the times differs as much (a permutation test of the medians).

Arguments: port, private key, name that exists elsewhere, name that does not exist, number of tries each; and how rare
(0.001) a difference by chance must be to count as a failure, never by default.
"""

import random
import statistics
import sys
import time

import paramiko

port, key_file, elsewhere, nowhere, tries = int(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
too_rare = float(sys.argv[6]) if len(sys.argv) > 6 else 0.0
RELABELLINGS = 5000
key = paramiko.Ed25519Key.from_private_key_file(key_file)


def connected(name):
    transport = paramiko.Transport(("127.0.0.1", port))
    transport.connect(username=name, pkey=key)
    return transport


def ask(transport):
    channel = transport.open_session()
    began = time.perf_counter()
    channel.exec_command("true")
    status = channel.recv_exit_status()
    took = time.perf_counter() - began
    said = channel.makefile_stderr().read().decode()
    channel.close()
    return took * 1000, status, said


names = {elsewhere: connected(elsewhere), nowhere: connected(nowhere)}
times, answers = {name: [] for name in names}, {}
for attempt in range(tries + 20):
    for name in random.sample(list(names), 2):
        took, status, said = ask(names[name])
        answers[name] = (status, said.replace(name, "NAME"))
        # The first ones find cold caches.
        if attempt >= 20:
            times[name].append(took)

same = answers[elsewhere] == answers[nowhere]
print("answers are the same" if same else f"answers differ: {answers}")
for name, what in ((elsewhere, "of another namespace"), (nowhere, "no such sandbox")):
    cuts = statistics.quantiles(times[name], n=100)
    shown = ", ".join(f"p{p} {cuts[p - 1]:.3f}" for p in (5, 25, 50, 75, 95))
    print(f"{what:>20}: {len(times[name])} tries, ms: {shown}")
difference = statistics.median(times[elsewhere]) - statistics.median(times[nowhere])
mixed, more = times[elsewhere] + times[nowhere], 0
for _ in range(RELABELLINGS):
    random.shuffle(mixed)
    relabelled = statistics.median(mixed[:tries]) - statistics.median(mixed[tries:])
    more += abs(relabelled) >= abs(difference)
share = more / RELABELLINGS
print(f"medians differ by {difference * 1000:.1f} µs; chance differs as much in {share:.2%} of relabellings")
sys.exit(not same or share < too_rare)
