"""The table of faults that must be caught, planted one by one."""
