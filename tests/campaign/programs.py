"""The programs of the campaign, all small, each about one thing that a region may meet."""

from tests.campaign.programs_cutting import CUTTING
from tests.campaign.programs_higher import HIGHER
from tests.campaign.programs_state import STATE
from tests.campaign.programs_values import VALUES

PROGRAMS = {**CUTTING, **STATE, **VALUES, **HIGHER}
