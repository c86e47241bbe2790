"""How rates are written, in sentences and tables alike."""


def rate_text(value: float, digits: int = 4) -> str:
    """``40,600``, ``310.5``, ``2.34``: enough digits to compare, none that noise makes; never
    with an exponent from a thousand on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{digits}g}"
