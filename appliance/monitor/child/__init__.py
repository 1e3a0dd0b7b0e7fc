"""The sensor child: a small process of its own that reads the sensors, since a vendor's library may hang."""
