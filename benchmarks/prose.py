"""Text that compresses like prose: different sentences of common words."""

from __future__ import annotations

import random

WORDS = (  # noqa: SIM905 - a text is read more easily than a list of words
    "the of and to in that was his he it with is for as had you not be her on at by which have or from this him "
    "but all she they were my are me one their so an said them we who would been will no when there if more out "
    "up into do any your what has man could other than our some very time upon about may its only now like little "
    "then can should made did us such great before must two these see know over much down after first good men "
    "own never most old shall day where those came come himself way work life without go make well through being "
    "long say might how am too even again many back here think every people went same last thought away under "
    "take found hand eyes still place while just also young yet though against things get ever give years off "
    "face right once nothing another left part saw house world head three took new love always put night each "
    "between tell mind heart few because thing whom far seemed looked called whole set both got find done heard "
    "look name days told let country asked"
).split()


def sentence(dice: random.Random, size: int) -> str:
    """Return a text of about this many characters."""
    words: list[str] = []
    length = 0
    while length < size - 5:
        word = dice.choice(WORDS)
        words.append(word)
        length += len(word) + 1
    return " ".join(words).ljust(size, ".")[:size]
