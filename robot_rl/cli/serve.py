"""``robot-rl serve``: run a policy here for robots, simulations and programs elsewhere."""

import asyncio

from data.formats.extras import require
from robot_rl.cli.output import say
from robot_rl.cli.parsing import parse
from robot_rl.serve.config import ServeConfig, read_token


def run(words: list[str]) -> int:
    """Serve until Ctrl-C."""
    config = parse(ServeConfig, words, "serve")
    token = read_token(config)
    for module in ("msgpack", "websockets"):
        require(module, "serve", "Serving a policy")
    from robot_rl.serve.loading import make_engine
    from robot_rl.serve.server import PolicyServer

    engine = make_engine(config)
    guarded = "with the token" if token else "for programs on this machine, without a token"

    def ready(address: str) -> None:
        say(engine.title, " at ", (address, "bold"), f" {guarded}; Ctrl-C ends it")

    asyncio.run(PolicyServer(engine, config, token).run(ready))
    return 0
