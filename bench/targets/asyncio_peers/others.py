"""Runs the programs under simloop or simloom (from Python 3.12): `others.py NAME SEEDS EXCHANGES`.

Prints, as JSON, the exchanges per CPU second. For the program with a lost update, it also prints
the CPU milliseconds per seed, and how many seeds found the lost update.
"""

import asyncio
import json
import sys
import time

import programs


async def lost_update(spawn, set_latency):
    programs.count = 0
    set_latency()
    spawn("counter", programs.serve)
    await asyncio.sleep(1.0)
    first = spawn("a", programs.increment)
    await asyncio.sleep(0.2)
    second = spawn("b", programs.increment)
    await asyncio.gather(first, second)
    return programs.count


async def exchanges_with(spawn, exchanges):
    spawn("counter", programs.serve_echo)
    await asyncio.sleep(1.0)
    await spawn("a", lambda: programs.exchange("counter", exchanges))


def run_simloop(seed, body):
    from simloop import SimLoop

    loop = SimLoop(seed=seed)
    result = []

    async def main():
        net = loop.net
        result.append(
            await body(
                lambda host, function: net.host(host).create_task(function()),
                lambda: net.set_defaults(latency=(0.001, 0.050)),
            )
        )

    try:
        loop.run_until_complete(main())
    finally:
        from simloop._run import finish

        finish(loop)
    return result[0]


def run_simloom(seed, body):
    import simloom

    programs.HOST = "counter"
    result = []

    async def main(world):
        result.append(
            await body(
                lambda host, function: world.host(host).spawn(function),
                lambda: world.net.set_latency(0.001, 0.050),
            )
        )

    simloom.run(main, seed=seed)
    return result[0]


def main():
    name, seeds, exchanges = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    run = {"simloop": run_simloop, "simloom": run_simloom}[name]
    begun = time.process_time()
    run(1, lambda spawn, _: exchanges_with(spawn, exchanges))
    speed = exchanges / (time.process_time() - begun)
    begun = time.process_time()
    lost = sum(run(seed, lost_update) != 2 for seed in range(seeds))
    each_ms = (time.process_time() - begun) / seeds * 1e3
    print(json.dumps([speed, each_ms, lost]))


main()
