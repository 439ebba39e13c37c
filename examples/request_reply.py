"""Ask somebody, and be the one who answers. If nobody is there to answer, one hears of it at once.

Run a broker (`heliograph broker run`), then: python examples/request_reply.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    async with heliograph.connect(address) as asker, heliograph.connect(address) as answerer:

        async def answer(request: heliograph.Publication) -> None:
            await answerer.reply(request, request.payload.upper())

        await answerer.subscribe("services/upper", callback=answer)
        answer_of_it = await asker.request("services/upper", "hello", timeout=5)
        print(answer_of_it.payload.decode())
        try:
            await asker.request("services/nobody", "hello")
        except heliograph.NoRespondersError as error:
            print(error)


asyncio.run(main(*sys.argv[1:2]))
