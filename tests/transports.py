"""Transports for tests: what carries bytes between engines and answers, in this process."""

from dataclasses import dataclass, field

from fedgem.engines.answering import Answering
from fedgem.engines.remote import Delivery, Node
from fedgem.files import Source
from fedgem.inputs import open_rows


def answers_of(clients, keep=None):
    """What answers for each client."""
    return {
        name: Answering(Source(name, *open_rows(X, name), None), keep)
        for name, X in clients.items()
    }


@dataclass
class Direct:
    """Carries every message at once; time passes only while somebody sleeps."""

    answers: dict
    named: bool = False
    now: float = 0.0
    replies: dict = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self):
        names = enumerate(self.answers)
        self.places = {Node(i, "", name if self.named else ""): name for i, name in names}

    def nodes(self):
        return list(self.places)

    def send(self, mail, seconds):
        tickets = {}
        for node, data in mail.items():
            tickets[node] = str(self.sent)
            self.sent += 1
            self.replies[tickets[node]] = Delivery(tickets[node], self.answer(node, data))
        return tickets

    def answer(self, node, data):
        return self.answers[self.places[node]](data)

    def receive(self, tickets):
        return [self.replies.pop(t) for t in tickets if t in self.replies]

    def time(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
