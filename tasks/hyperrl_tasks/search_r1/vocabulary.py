"""Words that the generated world is made of."""

from __future__ import annotations

__all__ = [
    "BUILDINGS",
    "FIRST_NAMES",
    "INSTRUMENTS",
    "NAME_MIDDLES",
    "NAME_STARTS",
    "PRODUCTS",
    "QUALITIES",
    "SURNAME_ENDS",
    "THINGS",
    "TOWN_ENDS",
    "TRADES",
    "WATER_ENDS",
]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAME_STARTS = _words(
    """
    Al Bar Bel Bran Cal Cor Dal Dor El Fal Gar Hal Har Ist Jar Kel Kor Lan Lor Mal Mar Mor Nor Or
    Per Quil Ran Ros Sal Sel Tal Tor Ul Val Ver Wal Wen Yar Zel
    """
)
NAME_MIDDLES = _words(
    """
    a ab ad an ar e el em en er i il im in ir o ol om on or u ul un ur
    """
)
TOWN_ENDS = _words(
    """
    bury by combe dale field ford ham holm leigh mere mouth stead thorpe ton wick worth
    """
)
SURNAME_ENDS = _words(
    """
    ach dell din feld gard heim lund man mont ner quist rand sen son stone tin vane
    """
)
WATER_ENDS = _words(
    """
    der ga ken la mara nith ra sa ter tha vel zer
    """
)
FIRST_NAMES = _words(
    """
    Ada Alma Amos Anton Arlo Bela Bruno Carla Cleo Dario Edda Elias Emil Enid Esra Fritz Greta Hanna
    Hugo Ida Igor Ilse Ines Ivo Jana Jonas Kaia Karl Lena Leo Lotte Mara Milo Mina Nils Nora Olga
    Oskar Paula Pia Rosa Ruth Sven Tara Tilda Udo Vera Willa Xenia Yves
    """
)
TRADES = _words(
    """
    Brewery Carpets Cement Ceramics Clocks Foods Glass Lamps Leather Motors Optics Paper Press Pumps
    Ropes Salt Shipyard Steel Textiles Timber Tools Works
    """
)
BUILDINGS = _words(
    """
    Abbey Arcade Archive Baths Bridge Castle Chapel Gallery Hall Library Lighthouse Mill Museum
    Observatory Opera Palace Station Theatre Tower Windmill
    """
)
THINGS = _words(
    """
    Anchor Bell Candle Clockmaker Comet Ferry Garden Glasshouse Harbour Island Key Lantern Letter
    Map Mirror Night Orchard Passenger Piano Shadow Stair Storm Summer Tide Violin Visitor Voyage
    Window Winter Witness
    """
)
QUALITIES = _words(
    """
    Amber Borrowed Broken Crooked Distant Empty Fallen Forgotten Frozen Gilded Hidden Hollow Last
    Little Lost Midnight Northern Painted Paper Quiet Restless Salted Secret Second Silent Silver
    Stolen Unfinished Velvet Waiting
    """
)
INSTRUMENTS = _words(
    """
    accordion banjo bassoon cello clarinet cornet flute harp lute mandolin oboe organ trombone
    trumpet tuba viola zither
    """
)
PRODUCTS = _words(
    """
    barometers bicycles blankets bricks buttons candles compasses envelopes gloves kettles ladders
    mirrors needles pencils pianos saddles scissors soap spectacles tiles umbrellas violins
    wallpaper watches
    """
)
