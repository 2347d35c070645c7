"""What a person reads: tables, plots and pages."""
