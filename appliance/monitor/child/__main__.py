"""`python -m appliance.monitor.child`: run the sensor child."""

from appliance.monitor.child.sensor import main

if __name__ == "__main__":
    main()
