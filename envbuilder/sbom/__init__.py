"""The software bill of materials of an image: what is in it, found in its files, as a CycloneDX document."""
