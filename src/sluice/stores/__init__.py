"""Stores: one module per engine. A request in, statements out, replies in, an outcome out."""
