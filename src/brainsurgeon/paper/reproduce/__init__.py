"""The paper's tables and figures: what was published, how it is run here, and what came out."""
