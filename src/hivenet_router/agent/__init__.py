"""The agent: stands in front of one inference engine and serves it to routers over links that it opens itself."""
