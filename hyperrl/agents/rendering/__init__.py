"""Chat messages to token ids and back, exactly: nothing sampled is ever rendered or encoded again.

Needs ``tokenizers`` and ``jinja2`` (``pip install 'hyperrl[agents]'``), neither torch nor transformers.
"""

from hyperrl.agents.rendering.bridge import Pattern
from hyperrl.agents.rendering.encoder import SafeTokenizer
from hyperrl.agents.rendering.parser import ParsedAction, parse_action
from hyperrl.agents.rendering.renderer import Renderer, TemplateRenderer, load_renderer
from hyperrl.agents.rendering.template import ChatTemplate

__all__ = [
    "ChatTemplate",
    "ParsedAction",
    "Pattern",
    "Renderer",
    "SafeTokenizer",
    "TemplateRenderer",
    "load_renderer",
    "parse_action",
]
