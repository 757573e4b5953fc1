"""Pre-training and fine-tuning of a small GPT, measured and predicted.  See the README here."""
