"""The text side of a model: messages, templates, dialects, detokenizing, stop strings."""
