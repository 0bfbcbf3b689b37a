from data.hints import did_you_mean

KNOWN = ("collect", "select", "evaluate")


def test_the_nearest_name_is_offered_in_quotes() -> None:
    assert did_you_mean("colect", KNOWN) == "did you mean 'collect'?"


def test_several_names_and_words_without_quotes() -> None:
    assert did_you_mean("colect", KNOWN, most=2, quoted=False) == "did you mean collect or select?"


def test_where_nothing_is_near_the_alternative_stands() -> None:
    assert did_you_mean("zzz", KNOWN, "choose from many") == "choose from many"
    assert not did_you_mean("zzz", KNOWN)


def test_likeness_decides_what_is_near() -> None:
    # Two of four letters in order: a ratio of 2 * 2 / (4 + 4).
    assert did_you_mean("abxy", ["abcd"]) == ""
    assert did_you_mean("abxy", ["abcd"], likeness=0.5) == "did you mean 'abcd'?"
