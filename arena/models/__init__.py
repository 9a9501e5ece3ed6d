"""The torch side, shared by the verifier and the drafters.

``files`` finds and converts model files, ``load`` loads models and drops layers,
``tokens`` is the tokenizer's side, ``lanes`` is the batched cache with tree
attention, ``laws`` turns logits into probability laws. This package imports
neither torch nor transformers: ``lanes`` and ``cache`` do when they are imported,
the others when their functions are called.
"""
