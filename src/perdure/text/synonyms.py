"""Words that people use for one another, in talk and in work on software: a small hand-made list (MEM-4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from perdure.text.stems import stem

LIKE_SHARE = 0.25

_GROUPS = """
add create new introduce
agree accept approve
answer reply response
apply application
avoid prevent
bad poor wrong
begin start launch boot startup
big large huge
bike bicycle cycling
book novel
boss manager
break broken crash fail failure
browser chrome firefox
bug defect error issue problem
build compile
buy purchase bought
car vehicle
change modify update edit
chat conversation talk
check verify validate test
child children kid kids son daughter
choose select pick choice decide decision
clean cleanup tidy
client customer
close shut quit exit
colleague coworker teammate
command cli terminal shell
company employer firm
concert gig show
config configuration settings setup option
contact reach outreach
cook cooking recipe dish
credential password secret token key
cv resume
database db
defer postpone delay deferral
delete remove erase drop
deploy deployment release publish ship
developer engineer programmer
directory folder
disk drive storage
dm message messaging
doc docs documentation readme
doctor physician
document file
email mail
employee staff
endpoint route url
environment env
execute run
fast quick speed performance
father dad
favorite favourite prefer preference like
fear afraid scared
film movie
fix repair resolve solve patch
flat apartment
food meal eat cuisine
friend buddy
funding grant funder
game play
gift present
happy glad joy
hang freeze stuck block
hate dislike
help support assist
hobby interest pastime
holiday vacation trip travel journey
home house
hurry urgent deadline due
idea plan proposal
image picture photo photograph screenshot
information info data
install installation setup
interview interviewer
job career work position
kill terminate stop
language locale translation
laptop computer machine pc
learn study
library package dependency module
limit maximum cap
link url
list enumerate
log logging trace
login signin authentication auth
luggage baggage
marry married wedding spouse husband wife
meet meeting
memory remember
mother mom mum
move relocate
music song band
name naming rename
notification notify alert toast
old legacy outdated stale obsolete
parent parents family
pet dog cat puppy kitten
pr pull-request
price cost expensive budget
professor teacher instructor
prompt instruction
push commit
race marathon run
refuse decline reject
release version
rest relax
restart reboot
rule policy convention guideline
sad upset unhappy depressed
safe safety secure security
save store persist
school college university
screen display monitor window
server backend service
shop store
sick ill illness
speed latency
sport exercise workout fitness
style design look
talk speech
task todo ticket
team group
temp temporary tmp
thing stuff
tool utility
trust reliable
ui interface frontend gui
unfinished incomplete open pending
user person people
webcam camera
write author
year age
"""


@cache
def _likes() -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in _GROUPS.strip().splitlines():
        group = {stem(word): word for word in reversed(line.split())}
        for term in group:
            found.setdefault(term, {}).update((other, word) for other, word in group.items() if other != term)
    return found


def similar_terms(term: str) -> Mapping[str, str]:
    """The terms of the words that people use in place of this one, each with its word."""
    return _likes().get(term, {})
