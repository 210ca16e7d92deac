from holdfast.agent.loop import Agent as Agent
from holdfast.context.accounting import account as account
from holdfast.context.cuts import legal_cuts as legal_cuts
from holdfast.context.passes import CHEAP_PASSES as CHEAP_PASSES
from holdfast.context.policy import Facts as Facts
from holdfast.context.policy import Pressure as Pressure
from holdfast.context.policy import pressure as pressure
from holdfast.context.reminders import prepend_context as prepend_context
from holdfast.context.requests import to_request as to_request
from holdfast.context.view import View as View
from holdfast.context.view import project as project
from holdfast.engine.compaction import compact as compact
from holdfast.engine.turn import prepare as prepare
from holdfast.engine.turn import run_turn as run_turn
from holdfast.errors import HoldfastError as HoldfastError
from holdfast.settings import Settings as Settings
from holdfast.transcript.blocks import Block as Block
from holdfast.transcript.messages import Message as Message
from holdfast.transcript.messages import Usage as Usage
from holdfast.transcript.records import Front as Front
from holdfast.wiring import create_session as create_session
from holdfast.wiring import memory_session as memory_session
from holdfast.wiring import open_session as open_session

__version__: str
__all__: list[str]
