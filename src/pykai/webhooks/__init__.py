"""Admission: what is changed or refused when objects are written."""
