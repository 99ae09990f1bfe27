"""Two servers on one database, one of them killed now and then: never too many seats are held."""

import asyncio
import logging
import os
import random
import secrets
import time
from contextlib import ExitStack, closing

import aiohttp
import pytest

from harness.engines import both_engines
from licserver.services.installation import open_services
from licserver.settings import Settings

pytestmark = pytest.mark.crash
ROUNDS = int(os.environ.get("LICENSING_RACES", "3"))  # `nox -s crash` asks for 200
RACERS, SEATS, LEASE, TURNS = 64, 5, 15, 2
KILLED = 0.15  # of the rounds


class Holders:
    """Who holds a seat, as the apps know it: from before the request to the lease's end or the release."""

    def __init__(self) -> None:
        self.until, self.most, self.granted = {}, 0, 0

    def add(self, seat, sent_at):
        """Note a seat that was granted."""
        self.until[seat] = sent_at + LEASE
        self.granted += 1
        self.most = max(self.most, len(self.now()))

    def now(self):
        """Return the seats that are held."""
        return {seat for seat, until in self.until.items() if until > time.monotonic()}


async def race(addresses, key, holders, kill):
    """Let all racers ask for seats at once; some hang up in the middle, and some release what they got."""

    async def run(session, number):
        seat, dice = secrets.token_hex(16), random.Random()
        body = {"license_key": key, "domain": f"{number}.example", "seat": seat}
        for _ in range(TURNS):
            address, sent_at = dice.choice(addresses) + "/api/v1/licenses/seat", time.monotonic()
            patience = dice.random() / 10 if dice.random() < 0.2 else 30
            try:
                async with asyncio.timeout(patience), session.post(address, json=body) as answer:
                    if answer.status == 200:
                        holders.add(seat, sent_at)
                    else:
                        assert (await answer.json())["error"] in {"no_seat", "seat_lost"}
                if kill is not None and holders.granted > SEATS:
                    kill()
                if seat in holders.until and dice.random() < 0.7:
                    del holders.until[seat]
                    async with session.post(address, json={**body, "release": True}):
                        pass
            except (aiohttp.ClientError, TimeoutError):
                pass  # killed, or hung up

    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(run(session, number) for number in range(RACERS)))


@both_engines
async def test_never_more_seats_are_held_than_were_sold(program, make_database_url):
    """64 racers on 5 seats: by the apps' log and by the database; what was granted outlives the kill."""
    if url := make_database_url():
        program.environ["LICSERVER_DATABASE_URL"] = url
    program.environ["LICSERVER_SEAT_LEASE"] = str(LEASE)
    program.environ["LICSERVER_WRITE_LIMIT"] = "0"
    keys = program.stock(floating_seats=SEATS, count=ROUNDS)
    granted = kills = 0
    settings = Settings(data_dir=program.folder, database_url=url, seat_lease=LEASE)
    with ExitStack() as stack, closing(open_services(settings)) as services:
        servers = [stack.enter_context(program.serve()) for _ in range(2)]
        for number, key in enumerate(keys):
            victim = servers[0][0] if number == 0 or random.random() < KILLED else None
            holders = Holders()
            await race([address for _, address in servers], key, holders, victim and victim.kill)
            assert holders.most <= SEATS
            held = {seat.id.hex() for seat in services.seats.list_held(services.licenses.get(key))}
            assert len(held) <= SEATS
            assert holders.now() <= held
            granted += holders.granted
            if victim is not None:
                victim.kill()
                kills += 1
                servers = [servers[1], stack.enter_context(program.serve())]
    summary = "%d rounds: %d seats granted, %d servers killed"  # shown by --log-cli-level=INFO
    logging.getLogger(__name__).info(summary, ROUNDS, granted, kills)
    assert granted > ROUNDS * SEATS
