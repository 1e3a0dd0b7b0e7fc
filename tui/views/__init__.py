"""The dashboard's panels as pure functions: a `View` and a width in, a `PanelView` out."""
