"""The paper's tables and figures as experiments, with its printed numbers beside ours."""
