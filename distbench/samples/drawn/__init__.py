"""Correct train programs that are drawn at random.

A seed gives a plan, which is plain data: model, data, loss, optimizer and how gradients
are summed. Drawing it needs NumPy alone; the program made of it runs in tasks.
"""
