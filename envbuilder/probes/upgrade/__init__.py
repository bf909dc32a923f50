"""What both images of an upgrade are asked; ``python <this folder> MODULE ARGUMENTS`` runs one probe."""
