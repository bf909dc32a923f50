"""Programs of the build steps that install less than a wheel holds. Each also runs as a script in the build."""
