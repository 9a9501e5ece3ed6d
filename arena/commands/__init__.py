"""The commands of ``arena``, one file a group; ``arena.cli`` assembles them."""
