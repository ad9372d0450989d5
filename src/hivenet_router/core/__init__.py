"""Decisions, and nothing else.

Every module here answers one question over plain values. Time and chance are arguments, nothing waits, and nothing
reads a socket, a file or the environment. What has to wait or to send is the business of the rooms in `router/`.
"""
