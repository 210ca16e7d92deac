from perdure.agent.loop import Agent as Agent
from perdure.compaction.passes import CHEAP_PASSES as CHEAP_PASSES
from perdure.context.accounting import account as account
from perdure.context.cuts import legal_cuts as legal_cuts
from perdure.context.policy import Facts as Facts
from perdure.context.policy import Pressure as Pressure
from perdure.context.policy import pressure as pressure
from perdure.context.reminders import prepend_context as prepend_context
from perdure.context.request import to_request as to_request
from perdure.context.view import ContextView as ContextView
from perdure.context.view import project as project
from perdure.engine.compact import compact as compact
from perdure.engine.turn import prepare as prepare
from perdure.engine.turn import run_turn as run_turn
from perdure.errors import PerdureError as PerdureError
from perdure.settings import Settings as Settings
from perdure.transcript.blocks import Block as Block
from perdure.transcript.messages import Message as Message
from perdure.transcript.messages import Usage as Usage
from perdure.transcript.records import Front as Front
from perdure.wiring import create_session as create_session
from perdure.wiring import memory_session as memory_session
from perdure.wiring import open_session as open_session

__version__: str
__all__: list[str]
