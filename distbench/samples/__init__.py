"""The program and the optimizers that faults and unusual programs are made from.

They are written as a user would write them, with the points where users go wrong as
methods of their own. Importing them does not import TensorFlow.
"""
