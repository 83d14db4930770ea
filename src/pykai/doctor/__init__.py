"""`kai doctor`: looks at an installation and says what to fix.

API server --> gathering --> Facts --> checks (pure functions, one row each) --> findings --> report
"""
