"""Lab 10: data and tensor parallel training written with torch.distributed, and how many bytes it sends."""
