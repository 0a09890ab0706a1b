"""The programs of the campaign, all small, each about one thing that a region may meet."""

from benchmarks.campaign.programs_cutting import CUTTING
from benchmarks.campaign.programs_higher import HIGHER
from benchmarks.campaign.programs_state import STATE
from benchmarks.campaign.programs_values import VALUES

PROGRAMS = {**CUTTING, **STATE, **VALUES, **HIGHER}
