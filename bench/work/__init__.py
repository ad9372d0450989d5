"""What does the most expensive input within the bounds cost, by shape?"""
