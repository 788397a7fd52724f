"""Our commands as tools of an agent, over the Model Context Protocol."""
